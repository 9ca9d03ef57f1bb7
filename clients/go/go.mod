module rhumb.dev/smoke

go 1.21
