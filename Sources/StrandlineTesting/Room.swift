// Room for StrandlineTesting; replaced by its first real file.
