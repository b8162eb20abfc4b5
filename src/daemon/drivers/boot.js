{const f=require("fs"),r=(n)=>{const b=Buffer.alloc(n);for(let a=0;a<n;){const k=f.readSync(3,b,a,n-a,null);if(!k)process.exit();a+=k}return b};
let h="";for(let c;(c=r(1).toString())!="\n";)h+=c;
require("vm").compileFunction(r(+h).toString(),["require","importer"],{filename:"zwinger-driver.js"})(require,(a,b)=>import(a,b))}
