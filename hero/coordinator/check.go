package coordinator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"edda/hero"
)

// The bounds of an object's fields, in bytes or entries. Every read of a Redis hash reads
// it whole, and a job travels in one message.
const (
	maxScript  = 1 << 20   // a script, or a message's text
	maxEnv     = 256 << 10 // all variables of one object; Linux takes 128 KiB a variable
	maxValue   = 128<<10 - 1
	maxVars    = 1000
	maxName    = 255 // topics, prerequisites, names of variables and executors
	maxAddress = 2048
	maxPubKey  = 1024
	maxList    = 1000 // entries of a list: as many as a flow has jobs
	maxResult  = 1 << 20

	maxSignatures = 64 << 10
)

// checkKnown refuses an unknown field by its name.
func checkKnown(field string, unknown []string, do string) error {
	if len(unknown) > 0 {
		return invalid(field+"."+unknown[0], "is not understood: %s", do)
	}
	return nil
}

func checkContext(id uint32) error {
	if id == 0 {
		return invalid("context_id", "is missing or 0: database 0 holds the actors, contexts begin at 1")
	}
	return nil
}

func checkID(field string, id uint32) error {
	if id == 0 {
		return invalid(field, "is missing or 0: the client gives every object an id from 1 to 4294967295")
	}
	return nil
}

// sameContext fills in the missing context of an object, and refuses another one.
func sameContext(field string, said *uint32, context uint32) error {
	if *said != 0 && *said != context {
		return invalid(field, "is %d, but the call is about context %d", *said, context)
	}
	*said = context
	return nil
}

// checkText refuses a text that is too long, is not UTF-8 or has a NUL.
func checkText(field, s string, most int) error {
	switch {
	case len(s) > most:
		return invalid(field, "has %d bytes, and may have %d", len(s), most)
	case !utf8.ValidString(s):
		return invalid(field, "is not UTF-8")
	case strings.ContainsRune(s, 0):
		return invalid(field, "contains a NUL character")
	}
	return nil
}

// checkWord is checkText for a text without control characters.
func checkWord(field, s string, most int) error {
	if err := checkText(field, s, most); err != nil {
		return err
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return invalid(field, "contains a control character")
	}
	return nil
}

// checkWords checks a list of names, none of them empty.
func checkWords(field string, list []string, each int) error {
	if err := checkCount(field, len(list)); err != nil {
		return err
	}
	for i, s := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if s == "" {
			return invalid(at, "is empty")
		}
		if err := checkWord(at, s, each); err != nil {
			return err
		}
	}
	return nil
}

func checkCount(field string, n int) error {
	if n > maxList {
		return invalid(field, "has %d entries, and may have %d", n, maxList)
	}
	return nil
}

// checkIDs checks a list of ids: none 0, none twice.
func checkIDs(field string, list []uint32) error {
	if err := checkCount(field, len(list)); err != nil {
		return err
	}
	seen := make(map[uint32]int, len(list))
	for i, id := range list {
		if id == 0 {
			return invalid(fmt.Sprintf("%s[%d]", field, i), "is 0, which is no id")
		}
		if first, twice := seen[id]; twice {
			return invalid(fmt.Sprintf("%s[%d]", field, i), "is %d, as %s[%d] is", id, field, first)
		}
		seen[id] = i
	}
	return nil
}

// checkEnv checks environment variables. Errors never show a value.
func checkEnv(field string, env map[string]string) error {
	if len(env) > maxVars {
		return invalid(field, "has %d variables, and may have %d", len(env), maxVars)
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || len(name) > maxName || !utf8.ValidString(name) {
			return invalid(field, "has a variable whose name is empty, too long, or contains = or NUL")
		}
		if err := checkText(field+"."+name, env[name], maxValue); err != nil {
			return err
		}
		size += len(name) + len(env[name])
	}
	if size > maxEnv {
		return invalid(field, "has %d bytes, and may have %d", size, maxEnv)
	}
	return nil
}

// checkResult checks the result that an executor reports.
func checkResult(field string, result map[string]string) error {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(result)) {
		if err := checkWord(field, name, maxName); err != nil {
			return err
		}
		if err := checkText(field+"."+name, result[name], maxResult); err != nil {
			return err
		}
		size += len(name) + len(result[name])
	}
	if size > maxResult || len(result) > maxVars {
		return invalid(field, "has %d bytes in %d entries, and may have %d in %d", size, len(result), maxResult, maxVars)
	}
	return nil
}

// CheckURL refuses a text that is no URL of a supervisor: http://, https:// or mycelium://.
func CheckURL(field, s string) error {
	if s == "" {
		return nil
	}
	if err := checkWord(field, s, maxAddress); err != nil {
		return err
	}
	if u, err := url.Parse(bracketed(s)); err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "mycelium"}, u.Scheme) {
		return invalid(field, "is no URL of a supervisor: want http://host:port, https://host or mycelium://<pk or ip>")
	}
	return nil
}

// bracketed adds the brackets around an IPv6 address that the documents' mycelium://<ip>
// lacks and a URL needs.
func bracketed(s string) string {
	rest, ok := strings.CutPrefix(s, "mycelium://")
	host, query, asks := strings.Cut(rest, "?")
	if ip, err := netip.ParseAddr(strings.TrimSuffix(host, "/")); !ok || err != nil || !ip.Is6() {
		return s
	}
	if asks {
		query = "?" + query
	}
	return "mycelium://[" + strings.TrimSuffix(host, "/") + "]" + query
}

// checkSignatures bounds the signatures, which are carried through unread, and returns them
// as they are stored, so that equal ones compare equal.
func checkSignatures(field string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) > maxSignatures {
		return nil, invalid(field, "has %d bytes, and may have %d", len(raw), maxSignatures)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil || compact.String() == "null" {
		return nil, nil // it is valid JSON: null or none was given
	}
	return compact.Bytes(), nil
}

// scriptTypes returns the types that jobs may have: the documents' and more.
func scriptTypes(more []hero.ScriptType) map[hero.ScriptType]bool {
	known := map[hero.ScriptType]bool{hero.ScriptOSIS: true, hero.ScriptSAL: true, hero.ScriptV: true, hero.ScriptPython: true, "rhai": true, "bash": true}
	for _, t := range more {
		known[t] = true
	}
	return known
}
