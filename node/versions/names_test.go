package versions

import (
	"testing"
	"time"

	"edda"
)

func TestTheFirstTextOfAVersionKeepsItsPlainName(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	names := namesOf([]edda.Manifest{
		{Saga: "order", Version: 1, Hash: "bbbbbbbbbbbb", Loaded: at(2)},
		{Saga: "order", Version: 1, Hash: "aaaaaaaaaaaa", Loaded: at(1)},
		{Saga: "order", Version: 2, Hash: "cccccccccccc", Loaded: at(3)},
		{Saga: "trip", Version: 1, Hash: "dddddddddddd", Loaded: at(4)},
	})
	if len(names) != 1 || names[Text{"order", 1, "bbbbbbbbbbbb"}] != "1+dev.bbbbbbbb" {
		t.Errorf("%v", names)
	}
}
