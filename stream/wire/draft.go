package wire

import (
	"encoding/json"

	"github.com/nats-io/nats.go"

	"edda/internal/jsonvalue"
)

// Draft is a message and the room to write it in. A window writes all its messages into
// one, because the client copies what it publishes; each is valid until the next is written.
type Draft struct {
	nats.Msg
	room             []byte    // for bodies
	id, trace, taken [1]string // the headers' values
	event            envelope
	command          aggregateCommand
	result           result
	coder            jsonvalue.Coder
}

func NewDraft() *Draft { return &Draft{Msg: nats.Msg{Header: nats.Header{}}} }

// newMessage writes one message.
func newMessage(write func(*Draft) error) (*nats.Msg, error) {
	d := NewDraft()
	if err := write(d); err != nil {
		return nil, err
	}
	return &d.Msg, nil
}

// body is *v as JSON, or v where it is that.
func (d *Draft) body(v any) (data []byte, err error) {
	if data, is := v.(json.RawMessage); is {
		return data, nil
	}
	d.room, err = d.coder.Append(d.room[:0], v)
	return d.room, err
}

// set writes a header into its place.
func (d *Draft) set(name string, place *[1]string, value string) {
	place[0] = headerText(value)
	d.Header[name] = place[:]
}
