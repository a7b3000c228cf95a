// Room for StrandlineSystemTests; replaced by its first real file.
