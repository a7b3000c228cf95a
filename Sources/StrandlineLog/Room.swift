// Room for StrandlineLog; replaced by its first real file.
