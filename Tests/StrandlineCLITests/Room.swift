// Room for StrandlineCLITests; replaced by its first real file.
