package standin

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"edda/hero/jsonrpc"
)

// The codes of the JSON-RPC API.
const (
	codeNoIP      = -32007
	codeNoKey     = -32008
	codePopTopic  = -32013
	codePush      = -32015
	codeReplyID   = -32018
	codeNoInfo    = -32019
	codeInfoID    = -32020
	serverMessage = "Server error"
)

// RPC is the node's JSON-RPC API, which Mycelium serves on port 8990.
func (n *Node) RPC() (http.Handler, error) {
	s, err := jsonrpc.NewServer(jsonrpc.Info{Title: "Stand-in for Mycelium's message API", Version: "0.7.10"}, n.methods(), jsonrpc.ServerOptions{})
	if err != nil {
		return nil, err
	}
	return n.crashing(s), nil
}

func (n *Node) methods() []jsonrpc.Method {
	return []jsonrpc.Method{
		jsonrpc.Define("pushMessage", "Send a message", jsonrpc.MethodOptions{Order: []string{"message", "reply_timeout"}, Errors: []int{codePush}}, n.rpcPush),
		jsonrpc.Define("popMessage", "Take a message", jsonrpc.MethodOptions{Order: []string{"peek", "timeout", "topic"}, Errors: []int{codePopTopic}}, n.rpcPop),
		jsonrpc.Define("pushMessageReply", "Reply to a message", jsonrpc.MethodOptions{Order: []string{"id", "message"}, Errors: []int{codeReplyID}}, n.rpcReply),
		jsonrpc.Define("getInfo", "Tell the node's subnet and public key", jsonrpc.MethodOptions{}, n.rpcNode),
		jsonrpc.Define("getPublicKeyFromIp", "Tell the public key of the node at an address", jsonrpc.MethodOptions{Order: []string{"ip"}, Errors: []int{codeNoIP, codeNoKey}}, n.rpcKey),
		jsonrpc.Define("getMessageInfo", "Tell the state of a message", jsonrpc.MethodOptions{Order: []string{"id"}, Errors: []int{codeNoInfo, codeInfoID}}, n.rpcInfo),
	}
}

type pushParams struct {
	Message      outgoing `json:"message"`
	ReplyTimeout *uint64  `json:"reply_timeout,omitempty"`
}

func (n *Node) rpcPush(ctx context.Context, p pushParams) (any, error) {
	if err := p.Message.validate(); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "%v", err)
	}
	id, sub, err := n.push(ctx, "", netip.Addr(*p.Message.Dst), p.Message.Topic, *p.Message.Payload, p.ReplyTimeout != nil)
	cut(ctx, err)
	if errors.Is(err, errTopic) {
		return nil, &jsonrpc.Error{Code: codePush, Message: serverMessage}
	}
	if err != nil || sub == nil {
		return onlyID{id}, err
	}
	m, ok, err := n.reply(ctx, sub, duration(*p.ReplyTimeout))
	cut(ctx, err)
	if !ok {
		return onlyID{id}, nil
	}
	return n.incoming(m), nil
}

type popParams struct {
	Peek    *bool   `json:"peek,omitempty"`
	Timeout *uint64 `json:"timeout,omitempty"`
	Topic   *string `json:"topic,omitempty"`
}

func (n *Node) rpcPop(ctx context.Context, p popParams) (*incoming, error) {
	var topic *[]byte
	if p.Topic != nil {
		raw, err := decode64(*p.Topic)
		if err != nil {
			return nil, &jsonrpc.Error{Code: codePopTopic, Message: serverMessage}
		}
		topic = &raw
	}
	wait := time.Duration(0)
	if p.Timeout != nil {
		wait = duration(*p.Timeout)
	}
	m, ok, err := n.pop(ctx, p.Peek != nil && *p.Peek, topic, wait)
	cut(ctx, err)
	if err != nil || !ok {
		return nil, err
	}
	return n.incoming(m), nil
}

type replyParams struct {
	ID      string   `json:"id"`
	Message outgoing `json:"message"`
}

func (n *Node) rpcReply(ctx context.Context, p replyParams) (bool, error) {
	if err := p.Message.validate(); err != nil {
		return false, jsonrpc.Errorf(jsonrpc.InvalidParams, "%v", err)
	}
	id, err := messageID(p.ID)
	if err != nil {
		return false, &jsonrpc.Error{Code: codeReplyID, Message: serverMessage}
	}
	_, _, err = n.push(ctx, id, netip.Addr(*p.Message.Dst), nil, *p.Message.Payload, false)
	cut(ctx, err)
	return err == nil, err
}

type infoParams struct {
	ID string `json:"id"`
}

func (n *Node) rpcInfo(ctx context.Context, p infoParams) (info, error) {
	id, err := messageID(p.ID)
	if err != nil {
		return info{}, &jsonrpc.Error{Code: codeInfoID, Message: serverMessage}
	}
	out, state, err := n.status(ctx, id)
	if err == nil && state == stateGone {
		err = &jsonrpc.Error{Code: codeNoInfo, Message: serverMessage}
	}
	return n.info(out, state), err
}

func (n *Node) rpcNode(context.Context, struct{}) (nodeInfo, error) { return n.about(), nil }

type keyParams struct {
	IP string `json:"ip"`
}

func (n *Node) rpcKey(_ context.Context, p keyParams) (string, error) {
	ip, err := netip.ParseAddr(p.IP)
	if err != nil {
		return "", &jsonrpc.Error{Code: codeNoIP, Message: serverMessage}
	}
	key := n.bus.keyAt(ip)
	if key == "" {
		return "", &jsonrpc.Error{Code: codeNoKey, Message: serverMessage}
	}
	return key, nil
}

// duration reads a number of seconds, at most a year.
func duration(seconds uint64) time.Duration {
	return time.Duration(min(seconds, 365*24*3600)) * time.Second
}
