// Room for Strandline; replaced by its first real file.
