"""`vrampack simulate`: packs recorded or drawn arrivals under one or more policies and shows how much found room."""
