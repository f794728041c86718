package wire

import (
	"encoding/json"
	"testing"
)

// TestTextIsWhatJSONSays: whether or not it is read by our own hand.
func TestTextIsWhatJSONSays(t *testing.T) {
	for _, in := range []string{`""`, `"order"`, `"a b.c>*"`, `"Grüße, 世界"`, `"\u00e9\ud83d\ude00"`, `"\ud800"`, `"tab\t\"quoted\" \\ \/"`, "\"bro\xffken\"", "\"\xed\xa0\x80\"", `"\\"`, "\"\u2028\""} {
		var want string
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatal(err)
		}
		var got struct{ T text }
		if err := json.Unmarshal([]byte(`{"T":`+in+`}`), &got); err != nil || string(got.T) != want {
			t.Errorf("%s: %q, want %q: %v", in, got.T, want, err)
		}
	}
}

// TestTextIsNotPartOfItsMessage: the bytes it was read from may be written over.
func TestTextIsNotPartOfItsMessage(t *testing.T) {
	in := []byte(`{"T":"order"}`)
	var got struct{ T text }
	if err := json.Unmarshal(in, &got); err != nil {
		t.Fatal(err)
	}
	clear(in)
	if got.T != "order" {
		t.Errorf("%q", got.T)
	}
}
