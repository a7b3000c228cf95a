// Room for StrandlineServerTests; replaced by its first real file.
