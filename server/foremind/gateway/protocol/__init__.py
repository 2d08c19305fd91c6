"""The messages on the wire, their decoding, and the AsyncAPI contract made of them."""
