package standin

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// base64ed is bytes in standard base64, with padding and without line breaks.
type base64ed []byte

func (b base64ed) MarshalJSON() ([]byte, error) {
	return json.Marshal(base64.StdEncoding.EncodeToString(b))
}

func (b *base64ed) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	var err error
	*b, err = decode64(s)
	return err
}

func decode64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, errors.New("base64 without line breaks")
	}
	return base64.StdEncoding.Strict().DecodeString(s)
}

// destination is an address, read from an address or a key.
type destination netip.Addr

func (d *destination) UnmarshalJSON(raw []byte) error {
	var either map[string]string
	if err := json.Unmarshal(raw, &either); err != nil {
		return err
	}
	if len(either) != 1 {
		return errors.New("a destination is one of ip and pk")
	}
	if key, ok := either["pk"]; ok {
		if b, err := hex.DecodeString(key); err != nil || len(b) != 32 {
			return errors.New("a key has 64 hexadecimal digits")
		}
		*d = destination(addressOf(strings.ToLower(key)))
		return nil
	}
	ip, err := netip.ParseAddr(either["ip"])
	if err != nil {
		return errors.New("a destination is one of ip and pk")
	}
	*d = destination(ip)
	return nil
}

// outgoing is a message in a push.
type outgoing struct {
	Dst     *destination `json:"dst"`
	Topic   base64ed     `json:"topic,omitempty"`
	Payload *base64ed    `json:"payload"`
}

func (o outgoing) validate() error {
	if o.Dst == nil {
		return errors.New("missing field `dst`")
	}
	if o.Payload == nil {
		return errors.New("missing field `payload`")
	}
	return nil
}

// incoming is a popped message.
type incoming struct {
	ID      string   `json:"id"`
	SrcIP   string   `json:"srcIp"`
	SrcPK   string   `json:"srcPk"`
	DstIP   string   `json:"dstIp"`
	DstPK   string   `json:"dstPk"`
	Topic   base64ed `json:"topic,omitempty"`
	Payload base64ed `json:"payload"`
}

func (n *Node) incoming(m received) *incoming {
	return &incoming{
		ID: m.id, SrcIP: m.from.IP(), SrcPK: m.from.key, DstIP: n.IP(), DstPK: n.key,
		Topic: m.topic, Payload: m.payload,
	}
}

// onlyID is the answer to a push without a reply.
type onlyID struct {
	ID string `json:"id"`
}

// nodeInfo describes a node.
type nodeInfo struct {
	Subnet string `json:"nodeSubnet"`
	Key    string `json:"nodePubkey"`
}

func (n *Node) about() nodeInfo { return nodeInfo{Subnet: rangeOf(n.ip).String(), Key: n.key} }

// publicKey is a node's key in the REST API.
type publicKey struct {
	Key string `json:"publicKey"`
}

// info describes a pushed message.
type info struct {
	Dst      string `json:"dst"`
	State    string `json:"state"`
	Created  int64  `json:"created"`
	Deadline int64  `json:"deadline"`
	MsgLen   int    `json:"msgLen"`
}

func (n *Node) info(out outbound, state string) info {
	return info{
		Dst: out.to.String(), State: state, MsgLen: out.size,
		Created: out.created.Unix(), Deadline: out.created.Add(n.bus.options.Window).Unix(),
	}
}

// messageID reads the id of a message: 16 hexadecimal digits.
func messageID(s string) (string, error) {
	if b, err := hex.DecodeString(s); err != nil || len(b) != 8 {
		return "", fmt.Errorf("an id has 16 hexadecimal digits")
	}
	return strings.ToLower(s), nil
}
