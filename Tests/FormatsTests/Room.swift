// Room for FormatsTests; replaced by its first real file.
