package grpceffect

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// TestManyUnsetFieldsTakeNoTime: another machine says how many fields a message
// has, and a few bytes of it how many messages there are.
func TestManyUnsetFieldsTakeNoTime(t *testing.T) {
	const fields, messages = 2_000, 100_000
	item := &descriptorpb.DescriptorProto{Name: proto.String("Item")}
	for i := range fields {
		item.Field = append(item.Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String(fmt.Sprint("f", i)), Number: proto.Int32(int32(i + 1)), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".x.Item"),
		})
	}
	list := &descriptorpb.DescriptorProto{Name: proto.String("List"), Field: []*descriptorpb.FieldDescriptorProto{{
		Name: proto.String("items"), Number: proto.Int32(1), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(),
		Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".x.Item"),
	}}}
	service := &descriptorpb.ServiceDescriptorProto{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{{
		Name: proto.String("M"), InputType: proto.String(".x.Item"), OutputType: proto.String(".x.List"),
	}}}
	files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{
		Name: proto.String("x.proto"), Package: proto.String("x"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{item, list}, Service: []*descriptorpb.ServiceDescriptorProto{service},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMethod("x.S/M", files, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 0, 2*messages)
	for range messages {
		raw = append(raw, 1<<3|2, 0)
	}
	if _, _, err = m.decode(raw); err == nil || !strings.Contains(err.Error(), "fields together") {
		t.Errorf("it was read whole: %v", err)
	}
	if _, _, err = m.decode(raw[:2*maxLooks/fields-2]); err != nil {
		t.Errorf("what just fits: %v", err)
	}
}
