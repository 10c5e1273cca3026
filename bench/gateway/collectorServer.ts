/** Receives traces and discards them: `PORT=<port> node collectorServer.ts`. */
import { createServer } from 'node:http'

createServer((request, response) => {
  request.resume().on('end', () => response.end('{}'))
}).listen(Number(process.env.PORT), '127.0.0.1')
