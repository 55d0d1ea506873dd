import * as pdfjs from "/pdf.min.mjs";
pdfjs.GlobalWorkerOptions.workerSrc = "/pdf.worker.min.mjs";
const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
const pdf = await pdfjs.getDocument({ data: bytes }).promise;
for (let number = 1; number <= pdf.numPages; number++) {
  const page = await pdf.getPage(number);
  const viewport = page.getViewport({ scale: 1.5 });
  const canvas = document.createElement("canvas");
  canvas.className = "page";
  canvas.width = viewport.width;
  canvas.height = viewport.height;
  document.body.append(canvas);
  await page.render({ canvasContext: canvas.getContext("2d"), viewport }).promise;
}
