package coordinator

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
)

// Detail is the data of an error: the field or key, the reason, and what to do.
type Detail struct {
	Field string `json:"field,omitempty"` // of the parameters or of a stored hash
	Key   string `json:"key,omitempty"`   // of the object in Redis
	Why   string `json:"why"`
	Do    string `json:"do,omitempty"`
	// IDs are the objects that are missing or wrong.
	IDs   []uint32 `json:"ids,omitempty"`
	Cycle []uint32 `json:"cycle,omitempty"` // its first id is also its last
}

func failed(code int, message string, d Detail) error {
	return &jsonrpc.Error{Code: code, Message: message, Data: d}
}

// invalid refuses a parameter.
func invalid(field, why string, args ...any) error {
	return failed(jsonrpc.InvalidParams, "Invalid params", Detail{Field: field, Why: fmt.Sprintf(why, args...), Do: "correct " + field + " and call again"})
}

func denied(caller uint32, key, why, do string) error {
	return failed(jsonrpc.PermissionDenied, "Permission denied", Detail{Key: key, Why: fmt.Sprintf("actor %d %s", caller, why), Do: do})
}

func notFound(key, do string) error {
	return failed(jsonrpc.NotFound, "Not found", Detail{Key: key, Why: key + " does not exist", Do: do})
}

// orNotFound returns err, and notFound in place of redisdb.ErrNotFound.
func orNotFound(err error, key, do string) error {
	if errors.Is(err, redisdb.ErrNotFound) {
		return notFound(key, do)
	}
	return err
}

// conflict refuses to change an object that must stay as it is.
func conflict(key, why, do string) error {
	return failed(jsonrpc.AlreadyExists, "Already exists", Detail{Key: key, Why: why, Do: do})
}

// dag refuses a graph that cannot run.
func dag(d Detail) error { return failed(jsonrpc.DagError, "DAG error", d) }

// wrap adds a subject to an error; nil stays nil.
func wrap(about string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", about, err)
}

// answer translates an error into a documented one, and logs those that the client cannot
// correct.
func (c *Coordinator) answer(method string, err error) error {
	if err == nil {
		return nil
	}
	out := translate(err)
	if out.Code == jsonrpc.StorageError || out.Code == jsonrpc.InternalError {
		c.options.Log.Warn("call failed", zap.String("method", method), zap.Int("code", out.Code), zap.Error(err))
	}
	return out
}

func translate(err error) *jsonrpc.Error {
	var (
		said    *jsonrpc.Error
		field   *hero.FieldError
		graph   *flow.GraphError
		storage *redisdb.StorageError
	)
	switch {
	case errors.As(err, &said):
		return said
	case errors.As(err, &graph):
		return &jsonrpc.Error{Code: jsonrpc.DagError, Message: "DAG error", Data: Detail{Why: graph.Error(), IDs: graph.Nodes, Cycle: graph.Cycle, Do: "correct the flow, or its jobs, and call again"}}
	case errors.As(err, &field):
		return stored(Detail{Key: field.Key, Field: field.Field, Why: field.Error(), Do: "repair this hash in Redis or remove it: it is never overwritten"})
	case errors.Is(err, context.DeadlineExceeded):
		return stored(Detail{Why: fmt.Sprintf("no answer within %s", callTimeout), Do: "call again: a call that is repeated does nothing twice"})
	case errors.As(err, &storage):
		return stored(Detail{Why: storage.Error(), Do: storage.Advice})
	case errors.Is(err, redisdb.ErrExists):
		return &jsonrpc.Error{Code: jsonrpc.AlreadyExists, Message: "Already exists", Data: Detail{Why: err.Error(), Do: "give another id"}}
	case errors.Is(err, redisdb.ErrIllegal):
		return stored(Detail{Why: err.Error() + ": it changed meanwhile", Do: "load it, and call again"})
	case errors.Is(err, edda.Temporary):
		return stored(Detail{Why: err.Error(), Do: "call again in a moment: a call that is repeated does nothing twice"})
	case errors.Is(err, edda.Permanent):
		return &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "Invalid params", Data: Detail{Why: err.Error()}}
	}
	return &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error", Data: Detail{Why: "the coordinator failed", Do: "look at its log"}}
}

func stored(d Detail) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.StorageError, Message: "Storage error", Data: d}
}
