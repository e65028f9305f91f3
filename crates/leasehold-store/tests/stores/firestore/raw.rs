//! Documents as another program sees them: written and read past the store.

use std::collections::HashMap;

use gcloud_sdk::google::firestore::v1::firestore_client::FirestoreClient;
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::{
    BatchGetDocumentsRequest, DeleteDocumentRequest, Document, DocumentMask, UpdateDocumentRequest, Value,
};
use gcloud_sdk::google_cloud_auth::credentials::anonymous;
use gcloud_sdk::{GoogleApi, GoogleAuthMiddleware};

pub type Fields = HashMap<String, Value>;

pub struct Raw {
    client: GoogleApi<FirestoreClient<GoogleAuthMiddleware>>,
    database: String,
}

pub fn text(text: &str) -> ValueType {
    ValueType::StringValue(text.to_owned())
}

pub fn fields<const N: usize>(fields: [(&str, ValueType); N]) -> Fields {
    fields.map(|(name, value)| (name.to_owned(), Value { value_type: Some(value) })).into()
}

impl Raw {
    pub async fn connect(host: &str, project: &str) -> Self {
        let (url, nobody) = (format!("http://{host}"), anonymous::Builder::new().build());
        let database = format!("projects/{project}/databases/(default)");
        let client = GoogleApi::from_function_with_credentials(FirestoreClient::new, url, None, nobody);
        Self { client: client.await.unwrap(), database }
    }

    fn name(&self, path: &str) -> String {
        format!("{}/documents/{path}", self.database)
    }

    /// Writes these fields and leaves the others as they are.
    pub async fn put(&self, path: &str, fields: Fields) {
        let update_mask = Some(DocumentMask { field_paths: fields.keys().cloned().collect() });
        let document = Some(Document { name: self.name(path), fields, ..Document::default() });
        let request = UpdateDocumentRequest { document, update_mask, ..UpdateDocumentRequest::default() };
        self.client.get().update_document(request).await.unwrap();
    }

    /// All fields; none when there is no such document.
    pub async fn get(&self, path: &str) -> Fields {
        self.look(path).await.0
    }

    /// Firestore's time, in milliseconds since 1970.
    pub async fn time(&self) -> u64 {
        self.look("nothing/here").await.1
    }

    async fn look(&self, path: &str) -> (Fields, u64) {
        use gcloud_sdk::google::firestore::v1::batch_get_documents_response::Result as Answer;
        let (database, documents) = (self.database.clone(), vec![self.name(path)]);
        let request = BatchGetDocumentsRequest { database, documents, ..BatchGetDocumentsRequest::default() };
        let mut answers = self.client.get().batch_get_documents(request).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap();
        let time = answer.read_time.unwrap();
        let millis = time.seconds.cast_unsigned() * 1_000 + u64::from(time.nanos.cast_unsigned()) / 1_000_000;
        match answer.result.unwrap() {
            Answer::Found(document) => (document.fields, millis),
            Answer::Missing(_) => (Fields::new(), millis),
        }
    }

    pub async fn delete(&self, path: &str) {
        let request = DeleteDocumentRequest { name: self.name(path), ..DeleteDocumentRequest::default() };
        self.client.get().delete_document(request).await.unwrap();
    }
}
