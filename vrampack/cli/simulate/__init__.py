"""`vrampack simulate`: packs recorded or random arrivals under one or more policies and shows how much was placed."""
