package grpceffect

import (
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"edda/effects"
)

// maxRetryAfter is what is believed of a server that asks to wait: longer than
// any step waits.
const maxRetryAfter = 7 * 24 * time.Hour

// class is what a status code says about calling again and about what was done;
// see effects.Response.
type class struct{ retry, refused, unknown, apart bool }

// classify follows the meaning that gRPC gives its codes. UNAVAILABLE is also
// what a proxy says of a server that broke off in the middle of a call, UNKNOWN
// and INTERNAL are what is left of a handler that crashed after it had done its
// work, CANCELLED and DATA_LOSS leave open how far the call had got: those may
// have had their effect. ABORTED says by itself that nothing was done. A call that
// was let in by nobody says nothing of one before it, and ALREADY_EXISTS may be
// what that one has made.
func classify(code codes.Code) class {
	switch code {
	case codes.ResourceExhausted:
		return class{retry: true, refused: true}
	case codes.Aborted:
		return class{retry: true}
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown:
		return class{retry: true, unknown: true}
	case codes.Canceled, codes.DataLoss:
		return class{unknown: true}
	case codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return class{apart: true}
	}
	if code > codes.Unauthenticated {
		return class{retry: true, unknown: true} // gRPC says: to be taken as UNKNOWN
	}
	return class{}
}

// codeName is the name as the protocol writes it: NOT_FOUND.
func codeName(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED" // the library spells it otherwise
	}
	if code > codes.Unauthenticated {
		return "UNKNOWN"
	}
	var b strings.Builder
	for i, r := range code.String() {
		if i > 0 && r >= 'A' && r <= 'Z' && code != codes.OK {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// response is the answer as expressions see it. newer tells that it holds what
// the method's description does not know.
func (m *method) response(data []byte, st *status.Status, md metadata.MD) (r effects.Response, newer bool, err error) {
	c := classify(st.Code())
	r = effects.Response{Status: int(st.Code()), Headers: incoming(md), Retry: c.retry, Refused: c.refused, Unknown: c.unknown, Apart: c.apart, After: retryAfter(st)}
	if st.Code() != codes.OK {
		r.Body = m.failure(st)
		return r, false, nil
	}
	r.Body, newer, err = m.decode(data)
	return r, newer, err
}

// failure is the body of a status that is not OK.
func (m *method) failure(st *status.Status) map[string]any {
	details := []any{}
	for _, d := range st.Proto().GetDetails() {
		v, err := m.detail(d)
		if err != nil {
			v = map[string]any{"@type": strings.ToValidUTF8(d.GetTypeUrl(), "\uFFFD")} // what it says is lost, the status is not
		}
		details = append(details, v)
	}
	return map[string]any{"code": codeName(st.Code()), "message": strings.ToValidUTF8(st.Message(), "\uFFFD"), "details": details}
}

// retryAfter is how long the server asks to wait: the longest of its RetryInfo
// details, 0 when there is none.
func retryAfter(st *status.Status) (after time.Duration) {
	for _, d := range st.Proto().GetDetails() {
		var info errdetails.RetryInfo
		if d.MessageIs(&info) && d.UnmarshalTo(&info) == nil {
			after = max(after, info.GetRetryDelay().AsDuration())
		}
	}
	return min(after, maxRetryAfter)
}
