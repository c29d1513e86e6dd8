"""The library in front of libc's ioctl, on the driver that is simulated in user space and an agent that tests control."""
