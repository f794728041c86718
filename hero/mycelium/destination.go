package mycelium

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// MaxTopic bounds a topic, in bytes.
const MaxTopic = 255

// Scheme begins the URL of a destination.
const Scheme = "mycelium://"

// Peer names a node by its key or by an address in its range.
type Peer struct {
	IP string `json:"ip,omitempty"`
	PK string `json:"pk,omitempty"` // 64 hexadecimal digits, in lower case
}

// ParseDestination reads mycelium://<pk|ip>[?topic=…], or a key or an address alone. The
// topic is "" if there is none.
func ParseDestination(s string) (d Peer, topic string, err error) {
	host, query, _ := strings.Cut(strings.TrimPrefix(s, Scheme), "?")
	if topic, err = parseTopic(query); err != nil {
		return Peer{}, "", fmt.Errorf("%q is no Mycelium destination: %w", s, err)
	}
	if d, err = parseHost(strings.TrimSuffix(host, "/")); err != nil {
		return Peer{}, "", fmt.Errorf("%q is no Mycelium destination: %w", s, err)
	}
	return d, topic, nil
}

func parseTopic(query string) (string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", err
	}
	for name, v := range values {
		if name != "topic" || len(v) > 1 {
			return "", fmt.Errorf("only one topic may follow the ?, not %q", name)
		}
	}
	topic := values.Get("topic")
	if len(topic) > MaxTopic {
		return "", fmt.Errorf("the topic has %d bytes, at most %d are possible", len(topic), MaxTopic)
	}
	return topic, nil
}

func parseHost(host string) (Peer, error) {
	if len(host) == 64 {
		if _, err := hex.DecodeString(host); err != nil {
			return Peer{}, fmt.Errorf("a key has 64 hexadecimal digits")
		}
		return Peer{PK: strings.ToLower(host)}, nil
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(inner, "]"); !ok {
			return Peer{}, fmt.Errorf("an address has no port and no path")
		}
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return Peer{}, fmt.Errorf("want a key of 64 hexadecimal digits or an IPv6 address")
	case !ip.Is6() || ip.Is4In6() || ip.Zone() != "":
		return Peer{}, fmt.Errorf("want an IPv6 address without a zone: Mycelium has no others")
	}
	return Peer{IP: ip.String()}, nil
}

// String returns the destination as a URL.
func (d Peer) String() string {
	if d.PK != "" {
		return Scheme + d.PK
	}
	return Scheme + "[" + d.IP + "]"
}

// Sent reports whether the destination sent the message. An address stands for its /64, the
// range of one node.
func (d Peer) Sent(m Message) bool {
	if d.PK != "" {
		return strings.EqualFold(d.PK, m.SrcPK)
	}
	return sameNode(d.IP, m.SrcIP)
}

func sameNode(a, b string) bool {
	x, err := netip.ParseAddr(a)
	if err != nil {
		return false
	}
	y, err := netip.ParseAddr(b)
	return err == nil && netip.PrefixFrom(x, 64).Contains(y)
}
