"""What a training needs around the model: its configuration, sharding, callbacks, saving and scoring."""
