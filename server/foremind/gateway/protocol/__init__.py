"""Wire messages, their decoding, and the AsyncAPI document generated from them."""
