package stream

import (
	"bytes"
	"encoding/json"
	"sync/atomic"

	"go.uber.org/zap"

	"edda/stream/wire"
)

// A NATS server holds nobody's reply subject to his permissions. So a program that may
// publish on one subject of a stream has the server's acks sent wherever it likes, which
// may be a subject of another tenant. They come without a header, and their texts are the
// server's; as events they would be that tenant's dead letters, and as an effect command
// one would be answered as failed.

// maxStray bounds what may be an ack: an error's description is a sentence.
const maxStray = 2 << 10

// stray tells whether a message is nothing but the server's ack of another one.
func stray(m wire.Message) bool {
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

// Strays counts acks in the place of messages, and logs the first. The zero value works.
type Strays struct {
	n   atomic.Uint64
	Log *zap.Logger
}

// Count is how many there were.
func (s *Strays) Count() uint64 { return s.n.Load() }

// leftOut tells whether the message is one of them.
func (s *Strays) leftOut(m wire.Message) bool {
	if !stray(m) {
		return false
	}
	if s.n.Add(1) == 1 && s.Log != nil {
		s.Log.Warn("an ack of the NATS server was sent to a subject of ours and is left out: somebody names that subject as where to reply; edda_stream_stray_acks_total counts on",
			zap.String("stream", m.Stream), zap.Uint64("seq", m.Seq), zap.String("subject", m.Subject))
	}
	return true
}
