// Room for StrandlineCloudKitTests; replaced by its first real file.
