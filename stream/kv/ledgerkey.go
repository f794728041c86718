package kv

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"edda/stream/wire"
)

const (
	// ledgerPrefix is what a bucket puts before its keys, to make subjects.
	ledgerPrefix = "$KV." + LedgerBucket + "."
	// maxLedgerKey keeps the subject of a key within MaxSubject.
	maxLedgerKey = wire.MaxSubject - len(ledgerPrefix)
	// ledgerEmpty stands for the empty text, and ledgerShort begins a token that
	// was too long and is its SHA-256: no escape has '=' or nothing after the '='.
	ledgerEmpty = "="
	ledgerShort = "=="
)

// ledgerKey names a command in the bucket: no two commands have one key, and
// what is plain stays readable. What is too long is shortened, the id first.
func ledgerKey(tenant, commandID string) string {
	t, id := ledgerToken(tenant), ledgerToken(commandID)
	if len(t)+1+len(id) > maxLedgerKey {
		id = ledgerHash(commandID)
	}
	if len(t)+1+len(id) > maxLedgerKey {
		t = ledgerHash(tenant)
	}
	return t + "." + id
}

// ledgerToken writes any bytes with the letters that a bucket takes, which are
// fewer than a subject's.
func ledgerToken(s string) string {
	if s == "" {
		return ledgerEmpty
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if plainByte(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func ledgerHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return ledgerShort + base64.RawURLEncoding.EncodeToString(sum[:])
}
