// Package jsonl writes records to a file, one JSON object per line, in the order in which the
// host reported them, and reads them back.
//
// The file is capped. When it has grown to its part of the cap it is compressed to
// NAME.1.gz, the next to NAME.2.gz, and so on; the oldest of them go, so that all files
// together stay within the cap.
//
// Nothing is flushed to the disk record by record, so a crash of the machine (not of the
// host) may lose the last ones. When the file cannot be written, records are lost and counted, and that is
// said once. A file that is moved away or removed is recreated with the next record.
package jsonl
