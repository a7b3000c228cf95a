// Room for StrandlineCloudKit; replaced by its first real file.
