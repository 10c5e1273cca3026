import type { Bundle } from './bundle.ts'

export function page({ script, imports, style, icon }: Bundle): string {
  const preloads = imports.map((name) => `<link rel="modulepreload" href="${name}">\n`)
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="theme-color" content="#f7f7f5" media="(prefers-color-scheme: light)">
<meta name="theme-color" content="#131516" media="(prefers-color-scheme: dark)">
<title>Tollkeeper</title>
<link rel="icon" href="${icon}" type="image/svg+xml">
<link rel="stylesheet" href="${style}">
${preloads.join('')}<script type="module" src="${script}"></script>
</head>
<body>
<div id="app"><noscript><p>The dashboard needs JavaScript: it verifies receipts in your browser.</p></noscript></div>
</body>
</html>
`
}
