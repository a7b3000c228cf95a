// Room for StrandlineLogTests; replaced by its first real file.
