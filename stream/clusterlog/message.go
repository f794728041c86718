package clusterlog

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"edda/cluster"
)

// The headers of a message. Its body is the entry, or the part of an entry.
const (
	headerKind  = "Edda-Kind"
	headerEpoch = "Edda-Epoch"
	headerLSN   = "Edda-Lsn"
	headerPrev  = "Edda-Prev" // checksum of the record before, in hex
	headerSum   = "Edda-Sum"  // checksum of the record, in hex
	headerNode  = "Edda-Node"
	headerLevel = "Edda-Level"
	headerState = "Edda-State" // checksum of the owner's store, in hex
	headerPart  = "Edda-Part"  // as 2/3; absent where the message is the whole record
)

func header(m cluster.Message) nats.Header {
	h := nats.Header{
		headerKind:  {string(m.Kind)},
		headerEpoch: {strconv.FormatUint(m.Epoch, 10)},
		headerLSN:   {strconv.FormatUint(m.LSN, 10)},
		headerPrev:  {fmt.Sprintf("%08x", m.Prev)},
		headerSum:   {fmt.Sprintf("%08x", m.Sum)},
		headerNode:  {m.Node},
		headerLevel: {strconv.Itoa(m.Level)},
		headerState: {fmt.Sprintf("%08x", m.State)},
	}
	if m.Parts > 1 {
		h[headerPart] = []string{fmt.Sprintf("%d/%d", m.Part, m.Parts)}
	}
	return h
}

func decode(h nats.Header, body []byte) (cluster.Message, error) {
	bad := false
	number := func(name string, base, bits int) uint64 {
		n, err := strconv.ParseUint(h.Get(name), base, bits)
		bad = bad || err != nil
		return n
	}
	m := cluster.Message{Sum: uint32(number(headerSum, 16, 32)), Part: 1, Parts: 1, Record: cluster.Record{
		Kind: cluster.Kind(h.Get(headerKind)), Epoch: number(headerEpoch, 10, 64), LSN: number(headerLSN, 10, 64),
		Prev: uint32(number(headerPrev, 16, 32)), Node: h.Get(headerNode), Level: int(number(headerLevel, 10, 31)),
		State: uint32(number(headerState, 16, 32)), Entry: body,
	}}
	if part := h.Get(headerPart); part != "" {
		n, _ := fmt.Sscanf(part, "%d/%d", &m.Part, &m.Parts)
		bad = bad || n != 2
	}
	if bad || m.Kind == "" || m.Part < 1 || m.Part > m.Parts {
		return cluster.Message{}, errors.New("it is no message of a log: something else writes to the stream")
	}
	return m, nil
}
