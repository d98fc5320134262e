# SPDX-License-Identifier: MIT
"""Many sparse copies of one structure, fused: `fuse`."""
