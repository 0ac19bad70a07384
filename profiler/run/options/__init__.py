"""The options of `profile_model.py` and `recommend_batch_size.py`."""
