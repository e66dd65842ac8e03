"""A cluster on AWS: a CloudFormation stack with a master, workers and a shared file system."""
