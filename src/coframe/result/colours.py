# SPDX-License-Identifier: MIT
"""A colour per cloud, the same wherever clouds are shown."""

# Seven hues that are distinct for any colour vision (after Okabe and Ito).
HUES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b3a000")
SHADES = (0.0, -0.35, 0.4, -0.6)  # further colours: darker (below 0) or lighter hues


def palette(count: int) -> list[str]:
    """`count` colours, `#rrggbb`; they repeat after 28."""
    return [
        _shaded(HUES[j % len(HUES)], SHADES[j // len(HUES) % len(SHADES)]) for j in range(count)
    ]


def _shaded(colour: str, shade: float) -> str:
    end = 255 if shade > 0 else 0
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (end - c) * abs(shade)):02x}" for c in parts)
