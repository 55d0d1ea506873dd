// The content of an archive that holds one file without compression, as `/download_files` sends it.

import { CallError } from "./errors";

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const END_BYTES = 22;
const ENTRY_BYTES = 46;
const LOCAL_BYTES = 30;
const ZIP64 = 0xffffffff;

export function unzipSingle(archive: Uint8Array): Uint8Array {
  const view = new DataView(archive.buffer, archive.byteOffset, archive.byteLength);
  const end = archive.length - END_BYTES;
  const broken = () => new CallError(0, "the archive that the sandbox sent cannot be read");
  if (end < 0 || view.getUint32(end, true) !== END) throw broken();
  const entry = view.getUint32(end + 16, true);
  if (view.getUint16(end + 10, true) !== 1) throw new CallError(0, "this is not a single file");
  if (entry + ENTRY_BYTES > end || view.getUint32(entry, true) !== ENTRY) throw broken();
  const size = view.getUint32(entry + 24, true);
  const local = view.getUint32(entry + 42, true);
  if (view.getUint16(entry + 10, true) !== 0 || size === ZIP64 || local + LOCAL_BYTES > end) throw broken();
  const start = local + LOCAL_BYTES + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
  if (start + size > entry) throw broken();
  return archive.subarray(start, start + size);
}
