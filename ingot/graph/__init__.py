"""The graph IR: typed, pure dataflow. Level 3."""
