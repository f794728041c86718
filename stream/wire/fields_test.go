package wire

import (
	"testing"

	"edda/internal/jsonvalue/jsonvaluetest"
)

func envelopes() []any {
	return []any{&envelope{}, &metadata{}, &command{}, &result{}, &input{}, &aggregateCommand{}}
}

func TestEnvelopesAreWrittenAndReadAsByEncodingJSON(t *testing.T) {
	jsonvaluetest.Suite(t, envelopes()...)
}

func FuzzAppendEnvelope(f *testing.F) { jsonvaluetest.FuzzAppend(f, envelopes()...) }

func FuzzDecodeEnvelope(f *testing.F) { jsonvaluetest.FuzzDecode(f, envelopes()...) }
