// Room for StrandlineTests; replaced by its first real file.
