package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"edda/internal/harness"
)

// caller calls a method of the coordinator.
type caller func(method string, params, result any) error

// answer is a JSON-RPC response.
type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// calls makes a client of JSON-RPC over HTTP.
func calls(ctx context.Context, url string) caller {
	client := &http.Client{Timeout: callFor}
	return func(method string, params, result any) error {
		body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		defer resp.Body.Close()
		var a answer
		switch err := json.NewDecoder(resp.Body).Decode(&a); {
		case err != nil:
			return fmt.Errorf("%s: %s: %w", method, resp.Status, err)
		case a.Error != nil:
			return harness.Fatal(fmt.Errorf("%s: %d %s %s", method, a.Error.Code, a.Error.Message, a.Error.Data))
		case result == nil:
			return nil
		}
		return json.Unmarshal(a.Result, result)
	}
}

// flowState is what flow.dag and flow.load say, as far as it is needed here.
type flowState struct {
	Status    string            `json:"status"`
	Result    map[string]string `json:"result"`
	Nodes     map[string]node   `json:"nodes"`
	Completed []uint32          `json:"completed"`
	Edges     [][2]uint32       `json:"edges"` // dependency, dependent
}

type node struct {
	Status  string `json:"node_status"`
	Attempt int    `json:"attempt"`
}

func (call caller) flow(id uint32) (s flowState, err error) {
	name := map[string]any{"context_id": contextID, "id": id}
	var f flowState
	if err = call("flow.load", name, &f); err == nil {
		err = call("flow.dag", name, &s)
	}
	s.Status, s.Result = f.Status, f.Result // the graph has none of them
	return s, err
}

func (s flowState) ended() bool { return s.Status == "finished" || s.Status == "error" }

// object is a job or a message.
type object struct {
	ID          uint32            `json:"id"`
	CallerID    uint32            `json:"caller_id"`
	Status      string            `json:"status"`
	Result      map[string]string `json:"result"`
	MessageType string            `json:"message_type"`
	FlowID      uint32            `json:"flow_id"`
	Attempt     int               `json:"attempt"`
	ReplyTo     string            `json:"reply_to"`
	Job         []object          `json:"job"`
}

func (call caller) list(method string) (out []object, err error) {
	return out, call(method, map[string]any{"context_id": contextID, "limit": listLimit}, &out)
}

// listLimit is more than there is of anything here.
const listLimit = 10000
