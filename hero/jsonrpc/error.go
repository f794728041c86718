package jsonrpc

import (
	"context"
	"errors"
	"fmt"
)

// The codes of errors. The first five are of the specification. Busy and TooBig are
// jsonrpsee's too; the others are of the Hero systems.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603

	NotFound         = -32001
	PermissionDenied = -32003
	TooBig           = -32007
	Busy             = -32009
	StorageError     = -32010
	AlreadyExists    = -32011
	DagError         = -32020
)

// Error is the answer to a call that failed. A handler returns one, wrapped or not; any
// other error becomes an InternalError.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"` // the code in words
	Data    any    `json:"data,omitempty"`
}

// Detail is the data of the InvalidParams that decoding answers.
type Detail struct {
	Field string `json:"field,omitempty"` // such as job.retries
	Why   string `json:"why"`
}

func unfit(field, format string, args ...any) *Error {
	return &Error{Code: InvalidParams, Message: Words(InvalidParams), Data: Detail{Field: field, Why: fmt.Sprintf(format, args...)}}
}

// Errorf returns an error with its code's words as message and the text as data.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: Words(code), Data: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	if e.Data == nil {
		return fmt.Sprintf("%s (%d)", e.Message, e.Code)
	}
	return fmt.Sprintf("%s (%d): %s", e.Message, e.Code, e.detail())
}

func (e *Error) detail() string {
	switch d := e.Data.(type) {
	case string:
		return d
	case Detail:
		return d.Why
	}
	raw, _ := encode(e.Data) // data that has no JSON has no text either
	return string(raw)
}

// Words returns the message of a code.
func Words(code int) string {
	switch code {
	case ParseError:
		return "Parse error"
	case InvalidRequest:
		return "Invalid request"
	case MethodNotFound:
		return "Method not found"
	case InvalidParams:
		return "Invalid params"
	case InternalError:
		return "Internal error"
	case NotFound:
		return "Not found"
	case PermissionDenied:
		return "Permission denied"
	case TooBig:
		return "Request is too big"
	case Busy:
		return "Server is busy"
	case StorageError:
		return "Storage error"
	case AlreadyExists:
		return "Already exists"
	case DagError:
		return "DAG error"
	}
	return "Server error"
}

// asError returns the error that a client gets.
func asError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled):
		return Errorf(InternalError, "the call was given up: the client went away or the server stops")
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(InternalError, "the call took too long")
	}
	return Errorf(InternalError, "%v", err)
}
