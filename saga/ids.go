package saga

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"edda"
)

// deriveID derives a UUIDv7-shaped id: 48 bits of the trigger's time in milliseconds, then bits of
// a SHA-256 of the parts. The same inputs give the same id on every machine and in every replay.
func deriveID(at time.Time, parts ...string) string {
	var most [512]byte // most ids have shorter parts: no allocation
	named := most[:0]
	for _, p := range parts {
		named = append(binary.BigEndian.AppendUint64(named, uint64(len(p))), p...)
	}
	sum := sha256.Sum256(named)
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16)
	copy(id[6:], sum[:10])
	id[6] = 0x70 | id[6]&0x0f // version 7
	id[8] = 0x80 | id[8]&0x3f // variant of RFC 9562
	return formatUUID(id)
}

func formatUUID(id [16]byte) string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// CommandID derives the id of what an instance emits in one transition, for callers without a
// manifest. The same arguments give the same id.
func CommandID(k edda.Key, generation int, trigger string, at time.Time, path string) string {
	return commandID(k, generation, trigger, clockMillis(at), path)
}

// commandID derives the id of what one path emits in one transition.
func commandID(k edda.Key, generation int, trigger string, at time.Time, path string) string {
	return deriveID(at, k.Tenant, k.Saga, k.Correlation, strconv.Itoa(generation), trigger, path)
}

// CommandTime is the time of the trigger that sent a command; zero if the id is not a derived one.
func CommandTime(id string) time.Time {
	if len(id) != 36 || id[14] != '7' {
		return time.Time{}
	}
	return timeOf(id)
}

// timeOf is the time in a derived id; the Unix epoch for other ids.
func timeOf(id string) time.Time {
	digits, _ := hex.DecodeString(strings.ReplaceAll(id[:min(len(id), 13)], "-", ""))
	var ms [8]byte
	if len(digits) == 6 {
		copy(ms[2:], digits)
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:])))
}

// timerID is the event id of a timer that came due.
func timerID(kind edda.TimerKind, name string, due time.Time, order int) string {
	return "timer/" + string(kind) + "/" + name + "/" + strconv.FormatInt(due.UnixMilli(), 10) + "/" + strconv.Itoa(order)
}
