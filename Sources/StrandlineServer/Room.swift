// Room for StrandlineServer; replaced by its first real file.
