package edda

import (
	"strconv"
	"strings"
)

// NamedEvent returns an event of the name that people write in a test or for edda send, with
// AggregateType, Type, FullType and Version. Order.OrderPlaced is an aggregate's type and an event.
// A name with two dots or more is the full type of a CloudEvent: com.github.pull_request.opened is
// the event opened of the aggregate pull_request.
func NamedEvent(name string) Event {
	ev := Event{Kind: KindEvent, Type: name}
	parts := strings.Split(name, ".")
	switch n := len(parts); n {
	case 1:
	case 2:
		ev.AggregateType, ev.Type = parts[0], parts[1]
	default:
		ev.FullType = name
		ev.Type, ev.Version = ShortType(name)
		if ev.Version > 0 {
			n--
		}
		ev.AggregateType = parts[n-2]
	}
	return ev
}

// Name is the event as people write it; see [NamedEvent].
func (e *Event) Name() string {
	switch {
	case e.FullType != "":
		return e.FullType
	case e.AggregateType == "" || e.Type == "": // an undecodable message has no type
		return e.AggregateType + e.Type
	}
	return e.AggregateType + "." + e.Type
}

// ShortType returns the event and the version of a CloudEvent's full type. The event is the last
// word without a trailing version: com.shop.OrderPlaced.v2 is version 2 of OrderPlaced. Without a
// version it returns 0.
func ShortType(full string) (event string, version int) {
	rest := full
	if before, n, ok := cutVersion(full); ok {
		rest, version = before, n
	}
	return rest[strings.LastIndexByte(rest, '.')+1:], version
}

// TypeWithoutVersion returns a full type without its trailing version.
func TypeWithoutVersion(full string) string {
	before, _, _ := cutVersion(full)
	return before
}

// cutVersion cuts .v2 off. It returns the whole type if it has no version.
func cutVersion(full string) (before string, version int, found bool) {
	i := strings.LastIndex(full, ".v")
	if i < 0 {
		return full, 0, false
	}
	n, err := strconv.Atoi(full[i+len(".v"):])
	if err != nil || n <= 0 {
		return full, 0, false
	}
	return full[:i], n, true
}
