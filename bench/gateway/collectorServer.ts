/** Takes traces and forgets them: `node collectorServer.ts <port>`. */
import { createServer } from 'node:http'

createServer((request, response) => {
  request.resume().on('end', () => response.end('{}'))
}).listen(Number(process.argv[2]), '127.0.0.1')
