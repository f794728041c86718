package wire

import (
	"testing"

	"edda"
)

// TestAMessageStays what it was while others are written.
func TestAMessageStays(t *testing.T) {
	work := []edda.Work{works()["fact"], works()["start"]}
	first, err := Codec{}.Work(work[0])
	if err != nil {
		t.Fatal(err)
	}
	data, id := string(first.Data), first.Header.Get(headerMsgID)
	if _, err := (Codec{}).Work(work[1]); err != nil {
		t.Fatal(err)
	}
	if string(first.Data) != data || first.Header.Get(headerMsgID) != id || id != "acme w-1" {
		t.Errorf("it has become %s, %s", first.Header, first.Data)
	}
}
