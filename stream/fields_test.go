package stream

import (
	"testing"

	"edda/internal/fields/fieldstest"
)

func envelopes() []any {
	return []any{&envelope{}, &metadata{}, &command{}, &result{}, &input{}, &aggregateCommand{}, &ack{}}
}

func TestEnvelopesAreWrittenAndReadAsByEncodingJSON(t *testing.T) {
	fieldstest.Suite(t, envelopes()...)
}

func FuzzAppendEnvelope(f *testing.F) { fieldstest.FuzzAppend(f, envelopes()...) }

func FuzzDecodeEnvelope(f *testing.F) { fieldstest.FuzzDecode(f, envelopes()...) }
