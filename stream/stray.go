package stream

import (
	"bytes"
	"encoding/json"
	"sync/atomic"

	"go.uber.org/zap"

	"edda/stream/wire"
)

// maxStray bounds the size of an ack: an error's description is a sentence.
const maxStray = 2 << 10

// isStrayAck reports whether a message is an ack of the server for another message.
//
// The server does not check a publisher's permissions on a reply subject. So a program that may
// publish to one subject of a stream can direct the server's acks to a subject of another tenant.
// Such an ack has no header, and the server writes its text. As an event it would become a dead
// letter of that tenant, and as an effect command it would be answered as failed.
func isStrayAck(m wire.Message) bool {
	if len(m.Header) > 0 || len(m.Data) > maxStray || !bytes.HasPrefix(m.Data, []byte(`{"stream":`)) && !bytes.HasPrefix(m.Data, []byte(`{"error":`)) {
		return false
	}
	var a struct {
		Error *struct {
			Code        int    `json:"code"`
			ErrCode     uint16 `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
		Stream    *string `json:"stream"`
		Seq       *uint64 `json:"seq"`
		Domain    string  `json:"domain"`
		Duplicate bool    `json:"duplicate"`
		Value     string  `json:"val"`
		Batch     string  `json:"batch"`
		Count     uint64  `json:"count"`
	}
	d := json.NewDecoder(bytes.NewReader(m.Data))
	d.DisallowUnknownFields()
	return d.Decode(&a) == nil && !d.More() && (a.Error != nil || a.Stream != nil && a.Seq != nil)
}

// Strays counts ignored acks and logs the first. The zero value works.
type Strays struct {
	n   atomic.Uint64
	Log *zap.Logger
}

// Count returns the number of ignored acks.
func (s *Strays) Count() uint64 { return s.n.Load() }

// drop reports whether to ignore the message.
func (s *Strays) drop(m wire.Message) bool {
	if !isStrayAck(m) {
		return false
	}
	if s.n.Add(1) == 1 && s.Log != nil {
		s.Log.Warn("ignored an ack of the NATS server on an input subject: a publisher names that subject for replies; edda_stream_stray_acks_total counts the others",
			zap.String("stream", m.Stream), zap.Uint64("seq", m.Seq), zap.String("subject", m.Subject))
	}
	return true
}
